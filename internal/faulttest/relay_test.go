package faulttest

import "io"

const relayVariable = "CKPT_FAULTTEST_RELAY"

func relay(in io.Reader, out io.Writer) int { return 0 }
