// The function between the two products of an expert, and its gradient: `cpu::experts`.
#include "activation_rows.cuh"
#include "curves.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
// Threads of the backward pass.
constexpr u32 BACKWARD_THREADS = 128;

// The rows at the places of all slots.
template <typename Body>
struct AtPlaces {
    Body body;
    Matrix<const i32> places;

    template <u32 COUNT>
    __device__ void at(u64 slot, u64 col) const {
        const i32 place = places.start[slot];
        if (place >= 0) {
            body.template at<COUNT>((u64)place, col);
        }
    }
};

// `y[R,F]` of `x[R,F]`, or of gate | up `x[R,2F]`.
template <typename E>
struct Forward {
    Matrix<const E> x;
    Matrix<E> y;
    Matrix<const i32> places;

    template <typename Body>
    __device__ void run(const Body &body) const {
        const AtPlaces<Body> rows = {body, places};
        for_each_vector<IN_ACCESS<E>>(places.len(), y.cols, body.in_vectors(), rows);
    }
};

template <typename E>
struct PlainForward : Forward<E> {
    template <typename Curve, typename>
    __device__ void finish() const {
        this->run(Plain<Curve, E>{this->x, this->y});
    }
};

template <typename E>
struct GatedForward : Forward<E> {
    template <typename Curve, typename>
    __device__ void finish() const {
        this->run(Gated<Curve, E>{this->x, this->y});
    }
};

// The gradients of rows, and of their weights: a team of 16 threads has a row.
template <typename E>
struct Backward {
    Matrix<const E> x;
    Matrix<const E> dy;
    // `[T,k]`
    Matrix<const f32> weights;
    // Of the shape of `x`.
    Matrix<E> dx;
    // `[R,F]`
    Matrix<E> y;
    // `[T,k]`
    Matrix<f32> dweights;
    Matrix<const i32> places;

    // Calls `term(row, col, weight)`, which stores gradients and returns a term of that of the row's weight, for each
    // column of each row.
    template <typename Term>
    __device__ void for_each_row(Term term) const {
        const u64 teams = grid_threads() / TEAM;
        const u64 team_of_warp = threadIdx.x / TEAM % 2;
        for (u64 first = global_team() - team_of_warp; first < places.len(); first += teams) {
            const u64 slot = first + team_of_warp;
            const bool is_own = slot < places.len();
            const i32 place = is_own ? places.start[slot] : -1;
            // Both teams of a warp sum, though one may have no row.
            const u32 token = is_own ? (u32)slot / (u32)places.cols : 0;
            const u32 slot_of_token = is_own ? (u32)slot % (u32)places.cols : 0;
            const f32 weight = is_own ? weights.row(token)[slot_of_token] : 0.0f;
            const f64 sum = row_sum(y.cols, [&](u64 col) {
                return place >= 0 ? term((u64)place, col, weight) : 0.0f;
            });
            if (is_own && team_lane() == 0) {
                dweights.row(token)[slot_of_token] = (f32)sum;
            }
        }
    }
};

template <typename E>
struct PlainGradient : Backward<E> {
    template <typename Curve, typename>
    __device__ void finish() const {
        this->for_each_row([&](u64 row, u64 col, f32 weight) {
            const activation::ValueAndSlope f = Curve::at(widen(this->x.row(row)[col]));
            const f32 dy = widen(this->dy.row(row)[col]);
            this->y.row(row)[col] = narrow<E>(weight * f.value);
            this->dx.row(row)[col] = narrow<E>(f.slope * (weight * dy));
            return dy * f.value;
        });
    }
};

template <typename E>
struct GatedGradient : Backward<E> {
    template <typename Curve, typename>
    __device__ void finish() const {
        const u64 half = this->y.cols;
        this->for_each_row([&](u64 row, u64 col, f32 weight) {
            const activation::ValueAndSlope f = Curve::at(widen(this->x.row(row)[col]));
            const f32 up = widen(this->x.row(row)[half + col]);
            const f32 dy = widen(this->dy.row(row)[col]);
            const f32 weighted = weight * dy;
            const f32 factor = Curve::factor(up);
            const f32 output = f.value * factor;
            this->y.row(row)[col] = narrow<E>(weight * output);
            this->dx.row(row)[col] = narrow<E>(weighted * factor * f.slope);
            this->dx.row(row)[half + col] = narrow<E>(Curve::gradient_of_up(up, weighted * f.value));
            return dy * output;
        });
    }
};

#define FORWARD(NAME, E, FORM, FINISH)                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Matrix<const E> x, Matrix<E> y, Matrix<const i32> places, CurveNumber curve) {                            \
        FINISH<E>(FORM<E>{{x, y, places}}, curve);                                                                     \
    }

FORWARD(expert_activation_plain_f32, f32, PlainForward, finish_plain)
FORWARD(expert_activation_plain_bf16, Bf16, PlainForward, finish_plain)
FORWARD(expert_activation_plain_f16, F16, PlainForward, finish_plain)
FORWARD(expert_activation_gated_f32, f32, GatedForward, finish_any_gated)
FORWARD(expert_activation_gated_bf16, Bf16, GatedForward, finish_any_gated)
FORWARD(expert_activation_gated_f16, F16, GatedForward, finish_any_gated)

#define BACKWARD(NAME, E, FORM, FINISH)                                                                                \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 5)                                                  \
        NAME(Matrix<const E> x, Matrix<const E> dy, Matrix<const f32> weights, Matrix<E> dx, Matrix<E> y,              \
             Matrix<f32> dweights, Matrix<const i32> places, CurveNumber curve) {                                      \
        FINISH<E>(FORM<E>{{x, dy, weights, dx, y, dweights, places}}, curve);                                          \
    }

BACKWARD(expert_activation_backward_plain_f32, f32, PlainGradient, finish_plain)
BACKWARD(expert_activation_backward_plain_bf16, Bf16, PlainGradient, finish_plain)
BACKWARD(expert_activation_backward_plain_f16, F16, PlainGradient, finish_plain)
BACKWARD(expert_activation_backward_gated_f32, f32, GatedGradient, finish_any_gated)
BACKWARD(expert_activation_backward_gated_bf16, Bf16, GatedGradient, finish_any_gated)
BACKWARD(expert_activation_backward_gated_f16, F16, GatedGradient, finish_any_gated)
