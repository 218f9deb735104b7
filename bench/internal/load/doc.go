// Package load is the half of the benchmark that makes work: the states that are saved, the loop of
// the clients that save them, and the lines of JSON that tell a driver process what to do and
// return how long each save took. The driver of LangGraph, in another language, does the same and
// uses the same lines.
//
// This package may import the standard library only.
package load
