// kernels follow
