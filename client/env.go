package client

// EnvSpool names the folder of the spool.
const EnvSpool = "CKPTSIDECAR_SPOOL"
