package ckptsidecar

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Percent is a share, written "5%". 0 is written "off".
type Percent float64

// String returns the share in its written form.
func (p Percent) String() string {
	if p == 0 {
		return "off"
	}
	return strconv.FormatFloat(math.Round(float64(p)*1e8)/1e6, 'f', -1, 64) + "%"
}

// ParsePercent reads "5%", "0.05" or "off".
func ParsePercent(text string) (Percent, error) {
	text = strings.TrimSpace(text)
	if text == "off" || text == "" {
		return 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		return 0, Errorf(CodeInvalid, "%q is not a percentage: give for example 5%%, or off", cut(text))
	}
	return Percent(x), nil
}

// MarshalJSON writes the share as text.
func (p Percent) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// UnmarshalJSON reads a text, or a number from 0 to 1.
func (p *Percent) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	read, err := ParsePercent(text)
	if err == nil {
		*p = read
	}
	return err
}

// Needs returns the number of good runs that are needed to promise at most this share of false
// alarms. With fewer runs, no threshold is proven high enough.
func (p Percent) Needs() int {
	if p <= 0 {
		return 0
	}
	return int(math.Ceil(1/float64(p)-1e-9)) - 1
}

// Calibration describes how the good runs of an agent and workflow change the thresholds of the
// loop rules.
type Calibration struct {
	Source   string  `json:"source,omitempty"` // the agent
	Workflow Ref     `json:"workflow"`
	Asked    Percent `json:"false_alarms"`
	Runs     int     `json:"runs"`   // runs that ended well
	Needs    int     `json:"needs"`  // the number of good runs that this share needs
	Factor   float64 `json:"factor"` // a rule warns above this multiple of its threshold; 0 while there are too few runs
	Quiet    int     `json:"quiet"`  // the number of these runs in which no rule came above the factor
	Capped   bool    `json:"capped"` // the runs ask for a laxer factor than the policy allows: more runs get warnings than asked for
}
