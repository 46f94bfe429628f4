// Counts words that differ, and keeps the place of the first one.
extern "C" __global__ void __launch_bounds__(256)
    compare(const unsigned *a, const unsigned *b, unsigned long long words, unsigned long long *result) {
    unsigned long long place = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; place < words; place += (unsigned long long)gridDim.x * blockDim.x) {
        if (a[place] != b[place]) {
            atomicAdd(result, 1ull);
            atomicMin(result + 1, place);
        }
    }
}
