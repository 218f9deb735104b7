// Package systems has all measured systems: how each system is found or installed, started in a
// separate folder with the settings that make it durable, paused while others are measured, and
// stopped.
//
// This package may import internal/load (the lines to the drivers) and internal/host.
package systems
