
// Runs the blocks one after the other. For each block, all threads run up to the barrier, and then all threads run the
// code after it.
extern "C" void forebay_host(const u8* fixed, u8* columns, u8* out, const Launch* launch, u64 blocks) {
    static u64 tile[TILE_WORDS];
    Run run = {fixed, columns, out, *launch};
    for (u64 block = 0; block < blocks; ++block) {
        for (u32 thread = 0; thread < THREADS; ++thread) {
            compute(run, block, thread, tile);
        }
        for (u32 thread = 0; thread < THREADS; ++thread) {
            write(run, block, thread, tile);
        }
    }
}
