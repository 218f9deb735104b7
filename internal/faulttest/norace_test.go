//go:build !race

package faulttest

var buildFlags []string
