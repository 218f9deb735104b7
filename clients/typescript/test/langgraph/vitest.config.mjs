export default { test: { globals: true, include: ['test/langgraph/*.spec.mjs'], hookTimeout: 60_000, testTimeout: 60_000, fileParallelism: false } };
