package endpoint

const systemRun = "/run"
