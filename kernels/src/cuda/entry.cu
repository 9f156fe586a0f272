// === Entry ===

#ifndef FOREBAY_ON_HOST
extern "C" __global__ void __launch_bounds__(THREADS)
    forebay_program(const u8* fixed, u8* columns, u8* out, Launch launch) {
    __shared__ u64 tile[TILE_WORDS];
    Run run = {fixed, columns, out, launch};
    compute(run, blockIdx.x, threadIdx.x, tile);
    __syncthreads();
    write(run, blockIdx.x, threadIdx.x, tile);
}
#endif
