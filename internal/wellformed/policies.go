package wellformed

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Layer is one of the policies that are merged: what it sets, as a JSON object, and its source.
type Layer struct {
	From ckpt.PolicySource
	Set  []byte
}

// OwnPolicy checks what a user sets in a policy, and returns the members that it names, sorted. A
// member that it leaves out is not set, so it comes from the next layer.
func OwnPolicy(data []byte) ([]byte, error) {
	if _, err := ParsePolicy(data); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the policy is wrong: %v", err)
	}
	maps.DeleteFunc(members, func(name string, value json.RawMessage) bool {
		text := string(bytes.TrimSpace(value))
		return text == "null" && name != "schema" || text == "{}" && parted(name) // it sets nothing
	})
	return json.Marshal(members)
}

// PolicyText returns the members of a policy that differ from the defaults.
func PolicyText(p ckpt.Policy) ([]byte, error) { return PolicyOver(p, ckpt.DefaultPolicy()) }

// PolicyOver returns what must be set over base so that p is the merged policy.
func PolicyOver(p, base ckpt.Policy) ([]byte, error) {
	p.Fill()
	base.Fill()
	want, err := policyMembers(p)
	if err != nil {
		return nil, err
	}
	have, err := policyMembers(base)
	if err != nil {
		return nil, err
	}
	follows, err := following(p)
	if err != nil {
		return nil, err
	}
	for name, value := range have {
		switch {
		case bytes.Equal(want[name], value) && bytes.Equal(want[name], follows[name]):
			delete(want, name)
		case parted(name):
			if want[name], err = partsOver(name, want[name], value); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(want)
}

// following returns the members that a policy has if the members that follow from others are not
// set.
func following(p ckpt.Policy) (members map[string]json.RawMessage, err error) {
	p.Takeover, p.OnLeaseLost = "", ""
	p.Fill()
	return policyMembers(p)
}

// partsOver returns what must be set of a member that is merged part by part. A part that base has
// and want lacks is set to an empty value, which is its default.
func partsOver(name string, want, base json.RawMessage) (json.RawMessage, error) {
	var over, have map[string]json.RawMessage
	if err := json.Unmarshal(want, &over); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(base, &have); err != nil {
		return nil, err
	}
	for part, value := range have {
		switch there, ok := over[part]; {
		case !ok && name == "detectors":
			over[part] = json.RawMessage("{}")
		case !ok:
			over[part] = json.RawMessage("0")
		case bytes.Equal(there, value):
			delete(over, part)
		}
	}
	return json.Marshal(over)
}

func policyMembers(p ckpt.Policy) (members map[string]json.RawMessage, err error) {
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	return members, err
}

// parted says whether a member of a policy is merged part by part. All others, including lists,
// come from one layer completely.
func parted(name string) bool { return name == "detectors" || name == "budget" }

// MergePolicies lays policies over one another, the weakest first, and all over the defaults. text
// is the result in its stored form: the whole policy, or {} if no layer sets anything. from gives,
// for each value that a layer sets, the source of that layer; the parts of detectors and budget
// have names of their own, such as budget.steps.
func MergePolicies(layers ...Layer) (p ckpt.Policy, text []byte, from map[string]ckpt.PolicySource, err error) {
	merged := map[string]json.RawMessage{}
	from = map[string]ckpt.PolicySource{}
	for _, layer := range layers {
		if len(layer.Set) == 0 {
			continue
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(layer.Set, &members); err != nil {
			return p, nil, nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "the stored policy of the %s is damaged: set it again", layer.From)
		}
		for name, value := range members {
			if !parted(name) {
				merged[name], from[name] = value, layer.From
			} else if merged[name], err = mergeParts(name, merged[name], value, layer.From, from); err != nil {
				return p, nil, nil, err
			}
		}
	}
	if len(merged) == 0 {
		return ckpt.DefaultPolicy(), []byte("{}"), from, nil
	}
	if text, err = json.Marshal(merged); err != nil {
		return p, nil, nil, err
	}
	if p, err = ParsePolicy(text); err != nil {
		return p, nil, nil, err
	}
	text, err = json.Marshal(p)
	return p, text, from, err
}

func mergeParts(name string, under, over json.RawMessage, source ckpt.PolicySource, from map[string]ckpt.PolicySource) (json.RawMessage, error) {
	parts := map[string]json.RawMessage{}
	for _, text := range []json.RawMessage{under, over} {
		if len(text) > 0 && jsontext.Check(text) == nil {
			if err := json.Unmarshal(text, &parts); err != nil {
				return nil, err
			}
		}
	}
	var set map[string]json.RawMessage
	if err := json.Unmarshal(over, &set); err != nil {
		return nil, err
	}
	for _, part := range slices.Sorted(maps.Keys(set)) {
		from[name+"."+part] = source
	}
	return json.Marshal(parts)
}
