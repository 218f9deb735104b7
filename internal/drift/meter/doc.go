// Package meter limits the work of expressions and schemas that users wrote.
//
// This package may import the standard library only.
package meter
