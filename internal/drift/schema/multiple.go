package schema

import (
	"math"
	"math/bits"
	"strconv"
)

// exact is the bound up to which a float64 holds every whole number.
const exact = 1 << 53

// isMultiple reports whether x is a whole multiple of a number, as they are written in decimal:
// 19.99 is a multiple of 0.01, although the quotient of their binary fractions is not whole.
func (v *validation) isMultiple(x, of float64) bool {
	x, of = math.Abs(x), math.Abs(of)
	switch {
	case x == 0 || of == 0:
		return of != 0
	case x < exact && of < exact && x == math.Trunc(x) && of == math.Trunc(of):
		return math.Mod(x, of) == 0
	}
	v.Pay(20)
	digits, exponent := decimal(x)
	unit, unitExponent := decimal(of)
	// x is a multiple if digits * 10^shift is one of unit.
	shift := exponent - unitExponent
	for ; shift < 0; shift++ {
		if digits%10 != 0 {
			return false
		}
		digits /= 10
	}
	rest := digits % unit
	for power := 10 % unit; shift > 0; shift >>= 1 {
		if shift&1 == 1 {
			rest = product(rest, power, unit)
		}
		power = product(power, power, unit)
	}
	return rest == 0
}

// product returns a * b modulo a number. a must be less than it.
func product(a, b, modulo uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return bits.Rem64(high, low, modulo)
}

// decimal returns the shortest decimal form of a number above 0: digits * 10^exponent, with at
// most 17 digits.
func decimal(x float64) (digits uint64, exponent int) {
	var memory [32]byte
	text := strconv.AppendFloat(memory[:0], x, 'e', -1, 64)
	i, point := 0, false
	for ; text[i] != 'e'; i++ {
		if text[i] == '.' {
			point = true
			continue
		}
		digits = digits*10 + uint64(text[i]-'0')
		if point {
			exponent--
		}
	}
	written, _ := strconv.Atoi(string(text[i+1:]))
	return digits, exponent + written
}
