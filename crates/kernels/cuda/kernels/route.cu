// The choice of a router, and the gradient of its weights: `cpu::experts::Route` and `RouteBackward`.
#include "expert_shares.cuh"

// Without a number of blocks, ptxas spills on sm_100a and sm_120a at 32 registers.
constexpr u32 THREADS = 128;

// A number with its score, and the order of choices: the better score, of equal ones the lower number; NaN comes last.
struct Candidate {
    f32 score;
    i32 number;
};

__device__ inline bool beats(f32 score, f32 other) {
    return score > other || (other != other && score == score);
}

__device__ inline bool comes_before(Candidate a, Candidate b) {
    return beats(a.score, b.score) || (!beats(b.score, a.score) && a.number < b.number);
}

// Before and after all candidates.
__device__ inline Candidate before_all() {
    return {math::infinity(), -1};
}

__device__ inline Candidate after_all() {
    return {math::not_a_number(), 0x7fffffff};
}

__device__ inline Candidate candidate(const f32 *scores, u32 number) {
    return {scores[number], (i32)number};
}

// The candidate that is number `count` of those of `scores[0..end]` of which `may(i)` holds, counted from 1, in the
// order of choices; in every lane of the team.
template <typename May>
__device__ inline Candidate last_of_best(u32 count, const f32 *scores, u32 end, May may) {
    Candidate last = before_all();
    for (u32 found = 0; found < count; found++) {
        Candidate best = after_all();
        for (u32 i = team_lane(); i < end; i += TEAM) {
            const Candidate own = candidate(scores, i);
            if (comes_before(last, own) && comes_before(own, best) && may(i)) {
                best = own;
            }
        }
#pragma unroll
        for (int width = TEAM / 2; width > 0; width /= 2) {
            const Candidate other = {__shfl_xor_sync(WHOLE_WARP, best.score, width, TEAM),
                                     __shfl_xor_sync(WHOLE_WARP, best.number, width, TEAM)};
            best = comes_before(other, best) ? other : best;
        }
        last = best;
    }
    return last;
}

// The score of a group of `size` experts: the best of theirs, or the sum of the two best of sigmoids.
__device__ inline f32 score_of_group(Scores kind, const f32 *scores, u32 size) {
    Candidate first = after_all();
    Candidate second = after_all();
    for (u32 i = 0; i < size; i++) {
        const Candidate own = candidate(scores, i);
        if (comes_before(own, first)) {
            second = first;
            first = own;
        } else if (comes_before(own, second)) {
            second = own;
        }
    }
    return kind == Scores::SIGMOID && size > 1 ? first.score + second.score : first.score;
}

// `choice[T,k]` in ascending order and `weights[T,k]` from `logits[T,E]`. A team has a token, and room in shared memory
// for a score of each expert and of each group. Two logits may have one score, so logits are compared where their order
// is that of the scores.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
route(Matrix<const f32> logits, Matrix<const f32> correction, Routing routing, u32 compares_scores, Matrix<i32> choice,
      Matrix<f32> weights) {
    extern __shared__ __align__(16) f32 memory[];
    const u32 experts = (u32)logits.cols;
    const u32 per_token = (u32)weights.cols;
    const u32 size = experts / routing.groups;
    f32 *scores = memory + threadIdx.x / TEAM * (experts + routing.groups);
    f32 *of_groups = scores + experts;
    const u64 teams = grid_threads() / TEAM;
    const u64 team_of_warp = threadIdx.x / TEAM % 2;
    for (u64 first = global_team() - team_of_warp; first < logits.rows; first += teams) {
        const u64 own = first + team_of_warp;
        const bool is_own = own < logits.rows;
        // Both teams of a warp have a token, though the second one may be the last once more.
        const u64 token = is_own ? own : logits.rows - 1;
        const f32 *row = logits.row(token);
        if (compares_scores != 0) {
            const Routing of_scores = {routing.scores, Weights::SCORES, 1.0f, 1, 1};
            const Shares all(of_scores, row, experts, experts, [=](u32 i) { return row[i]; });
            for (u32 i = team_lane(); i < experts; i += TEAM) {
                const f32 score = all.of(row[i]).share;
                scores[i] = correction.is_there() ? score + correction.start[i] : score;
            }
        } else {
            for (u32 i = team_lane(); i < experts; i += TEAM) {
                scores[i] = row[i];
            }
        }
        __syncwarp();
        for (u32 group = team_lane(); group < routing.groups; group += TEAM) {
            // One group of all is kept, whatever its score.
            of_groups[group] =
                routing.groups > 1 ? score_of_group(routing.scores, scores + group * size, size) : 0.0f;
        }
        __syncwarp();
        const Candidate last_group =
            last_of_best(routing.kept, of_groups, routing.groups, [](u32) { return true; });
        const auto is_kept = [=](u32 i) { return !comes_before(last_group, candidate(of_groups, i / size)); };
        const Candidate last = last_of_best(per_token, scores, experts, is_kept);
        // The logits of chosen experts take the places of scores that were read before.
        u32 slot = 0;
        for (u32 start = 0; start < experts; start += TEAM) {
            const u32 i = start + team_lane();
            const bool is_chosen = i < experts && is_kept(i) && !comes_before(last, candidate(scores, i));
            const u32 votes = __ballot_sync(WHOLE_WARP, is_chosen) >> (team_of_warp * TEAM) & 0xffff;
            __syncwarp();
            if (is_chosen) {
                const u32 place = slot + __popc(votes & ((1u << team_lane()) - 1));
                scores[place] = row[i];
                if (is_own) {
                    choice.row(token)[place] = (i32)i;
                }
            }
            slot += __popc(votes);
        }
        __syncwarp();
        const Shares shares(routing, row, experts, per_token, [=](u32 i) { return scores[i]; });
        for (u32 i = team_lane(); is_own && i < per_token; i += TEAM) {
            weights.row(token)[i] = shares.of(scores[i]).share * routing.scale;
        }
        __syncwarp();
    }
}

// `dlogits[T,E]` from `dweights[T,k]`: the table of `cpu::experts::RouteBackward`. A team has a token.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
route_backward(Matrix<const f32> logits, Routing routing, Matrix<const i32> choice, Matrix<const f32> dweights,
               Matrix<f32> dlogits) {
    const u32 experts = (u32)logits.cols;
    const u32 per_token = (u32)dweights.cols;
    const u64 teams = grid_threads() / TEAM;
    const u64 team_of_warp = threadIdx.x / TEAM % 2;
    for (u64 first = global_team() - team_of_warp; first < logits.rows; first += teams) {
        const u64 own = first + team_of_warp;
        const bool is_own = own < logits.rows;
        const u64 token = is_own ? own : logits.rows - 1;
        const f32 *row = logits.row(token);
        const i32 *chosen = choice.row(token);
        const f32 *gradients = dweights.row(token);
        const Shares shares(routing, row, experts, per_token, [=](u32 i) { return row[chosen[i]]; });
        // One chain of fused multiply-adds, which every lane computes.
        f32 sum = 0.0f;
        for (u32 i = 0; i < per_token; i++) {
            sum = fmaf(shares.of(row[chosen[i]]).share, gradients[i], sum);
        }
        const bool is_whole_softmax = routing.scores == Scores::SOFTMAX && routing.weights == Weights::SCORES;
        const bool is_each_alone = routing.scores == Scores::SIGMOID && routing.weights == Weights::SCORES;
        const f32 subtracted = is_each_alone ? 0.0f : sum;
        for (u32 i = team_lane(); is_own && i < experts; i += TEAM) {
            const ShareAndSlope s = shares.of(row[i]);
            f32 gradient = is_whole_softmax ? s.share * -sum * routing.scale : 0.0f;
            for (u32 slot = 0; slot < per_token; slot++) {
                if (chosen[slot] == (i32)i) {
                    gradient = s.share * s.slope * (gradients[slot] - subtracted) * routing.scale;
                }
            }
            dlogits.row(token)[i] = gradient;
        }
    }
}
