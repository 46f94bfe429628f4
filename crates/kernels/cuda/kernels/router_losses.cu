// Losses of routers, their gradients, and the entropy of scores: `cpu::experts::RouterLosses` and
// `RouterLossesBackward`.
#include "expert_shares.cuh"

constexpr u32 THREADS = 128;
constexpr i32 IGNORED_LABEL = -100;

// The losses of a token.
struct Terms {
    Scores scores;
    // Factors of the balance loss and of the z-loss.
    f32 balance;
    f32 z_loss;
};

// Scores of all experts that add up to 1.
__device__ inline Shares shares_of_all(Scores scores, const f32 *row, u32 experts) {
    const Weights weights = scores == Scores::SOFTMAX ? Weights::SCORES : Weights::NORMALISED;
    const Routing routing = {scores, weights, 1.0f, 1, 1};
    return Shares(routing, row, experts, experts, [=](u32 i) { return row[i]; });
}

// The loads of a token's run.
__device__ inline const f32 *loads_of(const Matrix<const f32> &load, u64 token, u64 tokens) {
    return load.row(token * load.rows / tokens);
}

__device__ inline f64 mean_load(const Shares &shares, const f32 *row, const f32 *load, u32 experts) {
    return row_sum(experts, [&](u64 i) { return shares.of(row[i]).share * load[i]; });
}

__device__ inline Softmax softmax_of_all(const f32 *row, u32 experts) {
    return softmax_of(experts, [=](u32 i) { return row[i]; });
}

__device__ inline f64 log_sum_exp(const Softmax &softmax) {
    return (f64)softmax.max + math::log_f64((f64)softmax.sum);
}

// The balance loss, the z-loss and the entropy of each token, `[1,T]`, as far as there are places. A team has a token.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
router_losses(Matrix<const f32> logits, Terms terms, Matrix<const f32> load, Matrix<f32> balance, Matrix<f32> z_loss,
              Matrix<f32> entropy) {
    const u32 experts = (u32)logits.cols;
    const u64 teams = grid_threads() / TEAM;
    const u64 team_of_warp = threadIdx.x / TEAM % 2;
    for (u64 first = global_team() - team_of_warp; first < logits.rows; first += teams) {
        const u64 own = first + team_of_warp;
        // Both teams of a warp have a token, though the second one may be the last once more.
        const u64 token = own < logits.rows ? own : logits.rows - 1;
        const bool writes = own < logits.rows && team_lane() == 0;
        const f32 *row = logits.row(token);
        const Shares shares = shares_of_all(terms.scores, row, experts);
        if (balance.is_there()) {
            f64 mean = 0.0;
            if (load.is_there()) {
                mean = mean_load(shares, row, loads_of(load, token, logits.rows), experts);
            }
            if (writes) {
                balance.start[token] = load.is_there() ? (f32)((f64)terms.balance * mean) : 0.0f;
            }
        }
        if (z_loss.is_there()) {
            const f64 value = log_sum_exp(softmax_of_all(row, experts));
            if (writes) {
                z_loss.start[token] = (f32)((f64)terms.z_loss * (value * value));
            }
        }
        if (entropy.is_there()) {
            const f64 sum = row_sum(experts, [&](u64 i) {
                const f32 share = shares.of(row[i]).share;
                // A share of zero has the term zero.
                return share * math::log(math::larger(math::MIN_POSITIVE, share));
            });
            if (writes) {
                entropy.start[token] = (f32)-sum;
            }
        }
    }
}

// `dlogits[T,E]` += `scale` times the gradient of the losses of tokens with a label, by the table of
// `cpu::experts::RouterLossesBackward`. A team has a token.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
router_losses_backward(Matrix<const f32> logits, Matrix<const i32> labels, Terms terms, Matrix<const f32> load,
                       u32 has_z_loss, f32 scale, Matrix<f32> dlogits) {
    const u32 experts = (u32)logits.cols;
    const u64 teams = grid_threads() / TEAM;
    const u64 team_of_warp = threadIdx.x / TEAM % 2;
    for (u64 first = global_team() - team_of_warp; first < logits.rows; first += teams) {
        const u64 own = first + team_of_warp;
        const u64 token = own < logits.rows ? own : logits.rows - 1;
        const bool is_trained = own < logits.rows && labels.start[token] != IGNORED_LABEL;
        const f32 *row = logits.row(token);
        f32 *gradient = dlogits.row(token);
        if (load.is_there()) {
            const Shares shares = shares_of_all(terms.scores, row, experts);
            const f32 *loads = loads_of(load, token, logits.rows);
            const f32 factor = (f32)((f64)terms.balance * (f64)scale);
            const f32 mean = (f32)mean_load(shares, row, loads, experts);
            for (u32 i = team_lane(); is_trained && i < experts; i += TEAM) {
                const ShareAndSlope s = shares.of(row[i]);
                gradient[i] = gradient[i] + s.share * (loads[i] - mean) * factor * s.slope;
            }
        }
        if (has_z_loss != 0) {
            const Softmax softmax = softmax_of_all(row, experts);
            const f32 factor = (f32)(2.0 * (f64)terms.z_loss * log_sum_exp(softmax) * (f64)scale);
            for (u32 i = team_lane(); is_trained && i < experts; i += TEAM) {
                gradient[i] = gradient[i] + softmax.value(row[i]) * factor;
            }
        }
    }
}
