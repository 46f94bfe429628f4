// Scores of experts, and the shares of a token's chosen experts, which are their weights before the scale:
// `cpu::experts::shares`. A team of 16 threads has a token.
#pragma once

#include "row_sum.cuh"

// How scores follow from logits, and weights from scores: `config::Routing`.
enum class Scores : u32 { SOFTMAX, SIGMOID };
enum class Weights : u32 { SCORES, NORMALISED };

struct Routing {
    Scores scores;
    Weights weights;
    f32 scale;
    // Groups of experts, of which the best are kept; one of one where all are.
    u32 groups;
    u32 kept;
};

// Added to a sum of sigmoids: the shares of experts whose scores are all zero are zero.
constexpr f32 SMALLEST_SUM = 1e-20f;

// Softmax of numbers: `exp(z - max) / sum`.
struct Softmax {
    f32 max;
    f32 sum;

    __device__ f32 value(f32 logit) const {
        return math::exp(logit - max) / sum;
    }
};

// Of `logit(i)` for `i < count`. Lanes without a number in the last sixteen have minus infinity there.
template <typename Logit>
__device__ inline Softmax softmax_of(u32 count, Logit logit) {
    f32 largest = -math::infinity();
    for (u32 first = 0; first < count; first += TEAM) {
        const u32 i = first + team_lane();
        largest = math::larger(largest, i < count ? logit(i) : -math::infinity());
    }
    const f32 max = team_max(largest);
    const f64 sum = row_sum(count, [=](u64 i) { return math::exp(logit((u32)i) - max); });
    return {max, (f32)sum};
}

struct ShareAndSlope {
    f32 share;
    // The slope of the logarithm of the score, apart from sums that it is divided by.
    f32 slope;
};

// The shares of a token's chosen experts, from their logits.
struct Shares {
    Routing routing;
    Softmax softmax;
    // Of normalised sigmoids.
    f32 sum;

    // Of a token with logits `row[E]`, of which `chosen(i)` are those of the `count` chosen experts.
    template <typename Chosen>
    __device__ Shares(const Routing &routing_, const f32 *row, u32 experts, u32 count, Chosen chosen)
        : routing(routing_), softmax{0.0f, 1.0f}, sum(1.0f) {
        if (routing.scores == Scores::SOFTMAX) {
            softmax = routing.weights == Weights::SCORES ? softmax_of(experts, [=](u32 i) { return row[i]; })
                                                         : softmax_of(count, chosen);
        } else if (routing.weights == Weights::NORMALISED) {
            sum = (f32)row_sum(count, [=](u64 i) { return math::sigmoid(chosen((u32)i)); }) + SMALLEST_SUM;
        }
    }

    __device__ ShareAndSlope of(f32 logit) const {
        if (routing.scores == Scores::SOFTMAX) {
            return {softmax.value(logit), 1.0f};
        }
        const math::SigmoidAndComplement s = math::sigmoid_and_complement(logit);
        return {routing.weights == Weights::NORMALISED ? s.sigmoid / sum : s.sigmoid, s.complement};
    }
};
