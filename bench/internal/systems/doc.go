// Package systems is everything that is measured: how each system is found or
// installed, started in a folder of its own with the settings that make it
// durable, paused while others are measured, and stopped.
//
// This package may import internal/load (the lines to the drivers) and
// internal/host.
package systems
