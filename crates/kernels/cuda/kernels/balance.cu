// The balance of experts: counts of choices, loads, corrections and capacities as `cpu::experts` has them. Counts are
// whole numbers, so no order of threads shows.
#include "block_counts.cuh"
#include "sum_words.cuh"
#include "tensor.cuh"

constexpr u32 THREADS = 256;
constexpr i32 IGNORED_LABEL = -100;

// `counts[R,E]` = or += the slots of `choice[T,k]` with each expert, of the tokens of each run whose labels count. A
// block has an expert in a run.
extern "C" __global__ void __launch_bounds__(WINDOW)
count_choices(Matrix<const i32> choice, Matrix<const i32> labels, Matrix<i64> counts, u32 is_accumulated) {
    const i32 expert = (i32)blockIdx.x;
    const u64 slots = choice.len() / counts.rows;
    const u64 first = blockIdx.y * slots;
    u32 own = 0;
    for (u64 slot = first + threadIdx.x; slot < first + slots; slot += WINDOW) {
        own += choice.start[slot] == expert && labels.start[slot / choice.cols] != IGNORED_LABEL ? 1 : 0;
    }
    const u32 sum = block_sum(own);
    if (threadIdx.x == 0) {
        i64 *count = counts.row(blockIdx.y) + blockIdx.x;
        *count = (is_accumulated != 0 ? *count : 0) + (i64)sum;
    }
}

// The sum of a run's counts.
__device__ inline i64 sum_of_run(Matrix<const i64> counts, u64 run) {
    i64 sum = 0;
    for (u64 expert = 0; expert < counts.cols; expert++) {
        sum += counts.row(run)[expert];
    }
    return sum;
}

// `load[R,E] = E counts[R,E] / sum of the run`, 0 for a run without counts. Both products are whole numbers that f64
// has.
extern "C" __global__ void __launch_bounds__(THREADS)
load_of_experts(Matrix<const i64> counts, Matrix<f32> load) {
    for (u64 place = global_thread(); place < counts.len(); place += grid_threads()) {
        const u64 run = place / counts.cols;
        const i64 sum = sum_of_run(counts, run);
        const i64 of_expert = (i64)counts.cols * counts.start[place];
        load.row(run)[place % counts.cols] = sum == 0 ? 0.0f : (f32)((f64)of_expert / (f64)sum);
    }
}

// `correction[R,E] += rate sign(sum of the run - E counts[R,E])`.
extern "C" __global__ void __launch_bounds__(THREADS)
correct_choices(Matrix<const i64> counts, f32 rate, Matrix<f32> correction) {
    for (u64 place = global_thread(); place < counts.len(); place += grid_threads()) {
        const u64 run = place / counts.cols;
        const i64 missing = sum_of_run(counts, run) - (i64)counts.cols * counts.start[place];
        const f32 sign = missing > 0 ? 1.0f : missing < 0 ? -1.0f : 0.0f;
        f32 *own = correction.row(run) + place % counts.cols;
        *own = *own + rate * sign;
    }
}

// The place of a weight in ascending order, with NaN after all numbers and the negative ones before: that of
// `f32::total_cmp`.
__device__ inline u32 order_of(f32 weight) {
    const u32 bits = __float_as_uint(weight);
    return (bits & SIGN) != 0 ? ~bits : bits | SIGN;
}

// `kept[T,k]`: the choice, or -1 beyond `capacity` tokens of a sequence for an expert, of which those with the largest
// weights stay, of equal ones the earlier slots. Tokens without a label neither count nor are dropped.
//
// A block has an expert in a sequence. It finds the smallest weight that may stay bit by bit from the highest on: the
// largest number that as many as the capacity reach. Of those that are equal to it the first ones stay.
extern "C" __global__ void __launch_bounds__(WINDOW)
limit_choices(Matrix<const i32> choice, Matrix<const f32> weights, Matrix<const i32> labels, u32 sequences, u32 capacity,
              Matrix<i32> kept, Matrix<i64> dropped) {
    const i32 expert = (i32)blockIdx.x;
    const u64 slots = choice.len() / sequences;
    const u64 first_slot = blockIdx.y * slots;
    const auto is_chosen = [=](u64 slot) { return choice.start[first_slot + slot] == expert; };
    const auto counts = [=](u64 slot) {
        return is_chosen(slot) && labels.start[(first_slot + slot) / choice.cols] != IGNORED_LABEL;
    };
    const auto order = [=](u64 slot) { return order_of(weights.start[first_slot + slot]); };
    // Slots that count and whose weight is `least` or larger.
    const auto reaching = [=](u32 least) {
        u32 own = 0;
        for (u64 slot = threadIdx.x; slot < slots; slot += WINDOW) {
            own += counts(slot) && order(slot) >= least ? 1 : 0;
        }
        return block_sum(own);
    };
    const u32 number = reaching(0);
    const bool is_limited = number > capacity;
    u32 least = 0;
    for (u32 bit = SIGN; is_limited && bit > 0; bit /= 2) {
        least = reaching(least | bit) >= capacity ? least | bit : least;
    }
    const u32 larger = least == 0xffffffffu ? 0 : reaching(least + 1);
    u32 room = is_limited ? capacity - larger : 0;
    for (u64 first = 0; first < slots; first += WINDOW) {
        const u64 slot = first + threadIdx.x;
        const bool is_own = slot < slots && is_chosen(slot);
        const bool is_counted = is_own && counts(slot);
        const bool is_equal = is_counted && order(slot) == least;
        const Counted counted = count(is_equal);
        if (is_own) {
            const bool is_large = !is_counted || order(slot) > least;
            const bool stays = !is_limited || is_large || (is_equal && counted.before < room);
            kept.start[first_slot + slot] = stays ? expert : -1;
        }
        room = counted.all < room ? room - counted.all : 0;
    }
    if (threadIdx.x == 0 && is_limited && dropped.is_there()) {
        fixed_point::add_atomically(dropped.start, number - capacity);
    }
}
