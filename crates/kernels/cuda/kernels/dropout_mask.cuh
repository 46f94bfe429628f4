// Which values a dropout keeps: `cpu::dropout` has the definition.
#pragma once

#include "philox.cuh"

// `launch::parameters` writes the same bytes.
struct DropoutMask {
    philox::Key key;
    u32 step;
    u32 site;
    // Of row 0, modulo 2^32.
    u32 first_token;
    // Of column 0.
    u32 first_channel;
    // A word below it is dropped.
    u32 threshold;
    // The factor of what is kept.
    f32 kept;

    // The words of the four channels from `4 * block` on.
    __device__ philox::Words words(u32 token, u32 block) const {
        return philox::block({block, token, step, site}, key);
    }

    __device__ f32 factor(u32 word) const {
        return word >= threshold ? kept : 0.0f;
    }
};
