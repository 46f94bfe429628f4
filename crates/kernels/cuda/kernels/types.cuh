// Names of the numbers that kernels compute with, as Rust names them.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f64 = double;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of integers");

// The bits of infinity, and of a sign.
constexpr u32 INFINITE = 0x7f800000u;
constexpr u32 SIGN = 0x80000000u;
