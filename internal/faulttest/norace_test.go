//go:build !race && unix

package faulttest

const lookingForRaces = false
