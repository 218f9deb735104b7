//go:build !race

package faulttest

const lookingForRaces = false
