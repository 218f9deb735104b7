// Package load is the half of the benchmark that makes work: the states that
// are saved, the loop of the clients that save them, and the lines of JSON over
// which a driver process is told what to do and answers how long each save
// took. The driver of LangGraph, in another language, does the same and speaks
// the same lines.
//
// This package may import the standard library only.
package load
