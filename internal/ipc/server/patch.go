package server

import (
	"bytes"
	"errors"

	jsonpatch "github.com/evanphx/json-patch/v5"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The limits for one patch. A patch is a convenience for small states. Clients that
// change large states send them whole or as a delta.
const (
	maxPlaces    = 1 << 20 // values in base and patch together
	maxPatchWork = 1 << 27 // operations times values
	maxPatchScan = 1 << 31 // depth times bytes: each level that a patch enters is read again
)

// patchSave applies the body to the checkpoint that the query parameter base names.
func (c *call) patchSave(form string) (*ckpt.SaveRequest, error) {
	id := c.query.get("base")
	if id == "" {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "base is missing: name the checkpoint that the patch changes, as in ?base=ID")
	}
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	if err := c.query.refuse("the patched state is the same as its base", "content_type"); err != nil {
		return nil, err
	}
	if err := c.refuseSums(); err != nil {
		return nil, err
	}
	r, err := c.saveParameters(form)
	if err != nil {
		return nil, err
	}
	if r.Parent == "" {
		r.Parent = ckpt.Ref(id)
	}
	patch, err := c.readBody(c.server.limits.MaxBody, 2)
	if err != nil {
		return nil, err
	}
	if err := jsontext.Check(patch); err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the patch is not JSON: %v", err)
	}
	base, err := c.patchBase(id)
	if err != nil {
		return nil, err
	}
	r.ContentType = base.ContentType
	r.State, err = c.change(base.State, patch, form)
	return r, err
}

// patchBase reads the base. A missing base and another agent's base give the same error,
// which makes clients send the whole state.
func (c *call) patchBase(id string) (*ckpt.Checkpoint, error) {
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return nil, err
	}
	ctx, cancel := c.writing(c.server.limits.ReadTimeout)
	defer cancel()
	base, err := c.server.store.Checkpoints.Checkpoint(ctx, c.scope, id, true)
	switch {
	case ckpt.CodeOf(err) == ckpt.CodeNotFound, err == nil && (base.Agent != c.agent || base.Owner != c.scope.Whose()):
		repeated := ""
		if c.key != "" {
			repeated = "if this repeats a request, look first whether the newest checkpoint is already what you want; if not, "
		}
		return nil, ckpt.Errorf(ckpt.CodeBaseMissing, "the base %s is not, or no longer, a checkpoint of this agent: %ssend the whole state", id, repeated)
	case err != nil:
		return nil, err
	case !ckpt.IsJSON(base.ContentType):
		return nil, ckpt.Errorf(ckpt.CodeConflict, "the base is not JSON, so a JSON patch cannot change it: send the whole state")
	}
	return base, nil
}

// change computes the new state. The same base and patch always give the same bytes.
// Otherwise a repeated request would look like a different one.
func (c *call) change(base, patch []byte, form string) ([]byte, error) {
	if places(base)+places(patch) > maxPlaces {
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the state has too many values to be patched: send it whole")
	}
	if err := c.hold(&c.conn.owner.heavy, 1); err != nil {
		return nil, err
	}
	limit := c.server.limits.MaxBody
	var state []byte
	var err error
	if form == ipc.TypeMergePatch {
		if jsontext.Nesting(patch)*(len(base)+len(patch)) > maxPatchScan {
			return nil, tooDeep()
		}
		state = mergePatch(base, patch)
	} else {
		state, err = jsonPatch(base, patch, limit)
	}
	if err == nil && int64(len(state)) > limit {
		err = ckpt.Errorf(ckpt.CodeTooLarge, "the patched state is larger than the %d bytes that are allowed", limit)
	}
	return state, err
}

func tooDeep() error {
	return ckpt.Errorf(ckpt.CodeTooLarge, "the patch goes too deep into a state of this size: send it whole")
}

// mergePatch implements RFC 7396 on texts: parts that the patch does not touch keep their
// bytes, and new members have the order of the patch.
func mergePatch(doc, patch []byte) []byte {
	return appendMerged(make([]byte, 0, len(doc)+len(patch)), doc, patch)
}

func appendMerged(out, doc, patch []byte) []byte {
	changes, isObject := members(patch)
	if !isObject {
		return append(out, bytes.TrimSpace(patch)...)
	}
	change := make(map[string][]byte, len(changes))
	for _, m := range changes {
		change[m.name] = m.value
	}
	present, _ := members(doc) // anything that is not an object counts as an empty one
	out, first := append(out, '{'), true
	for _, m := range present {
		value, changed := change[m.name]
		delete(change, m.name)
		switch {
		case !changed:
			out = append(beginMember(out, m.key, &first), m.value...)
		case !isNull(value):
			out = appendMerged(beginMember(out, m.key, &first), m.value, value)
		}
	}
	for _, m := range changes {
		if value, left := change[m.name]; left && !isNull(value) {
			out = appendMerged(beginMember(out, m.key, &first), nil, value)
		}
	}
	return append(out, '}')
}

func beginMember(out, key []byte, first *bool) []byte {
	if !*first {
		out = append(out, ',')
	}
	*first = false
	return append(append(out, key...), ':')
}

func isNull(value []byte) bool { return string(value) == "null" }

// jsonPatch implements RFC 6902.
func jsonPatch(doc, patch []byte, limit int64) (state []byte, err error) {
	defer func() {
		if recover() != nil { // a fault of the library that the caller's input triggers
			state, err = nil, ckpt.Errorf(ckpt.CodeInvalid, "the patch cannot be applied")
		}
	}()
	ops, err := jsonpatch.DecodePatch(patch)
	if err != nil || ops == nil { // the text null gives nil
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the patch is not a list of RFC 6902 operations")
	}
	if err := checkOperations(ops); err != nil {
		return nil, err
	}
	if len(ops)*(places(doc)+places(patch)) > maxPatchWork {
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the patch has too many operations for a state of this size: send it whole")
	}
	if deepest(ops)*(len(doc)+len(patch)) > maxPatchScan {
		return nil, tooDeep()
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	options.AccumulatedCopySizeLimit = limit
	options.EscapeHTML = false
	state, err = ops.ApplyWithOptions(bytes.TrimSpace(doc), options)
	return state, patchError(err)
}

// checkOperations refuses values that the library would treat as null.
func checkOperations(ops jsonpatch.Patch) error {
	for i, op := range ops {
		switch op.Kind() {
		case "add", "replace", "test":
			if _, given := op["value"]; !given {
				return ckpt.Errorf(ckpt.CodeInvalid, "operation %d of the patch has no value", i)
			}
		}
	}
	return nil
}

// deepest returns the number of levels of the longest pointer in the patch.
func deepest(ops jsonpatch.Patch) int {
	most := 0
	for _, op := range ops {
		for _, name := range [...]string{"path", "from"} {
			if pointer := op[name]; pointer != nil {
				most = max(most, bytes.Count(*pointer, []byte{'/'}))
			}
		}
	}
	return most
}

// patchError classifies the library's errors. Their texts can contain values.
func patchError(err error) error {
	var copies *jsonpatch.AccumulatedCopySizeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return ckpt.Errorf(ckpt.CodeConflict, "a test of the patch failed: the base is not what the patch expects")
	case errors.Is(err, jsonpatch.ErrMissing), errors.Is(err, jsonpatch.ErrInvalidIndex):
		return ckpt.Errorf(ckpt.CodeConflict, "a path of the patch is not in the base")
	case errors.As(err, &copies):
		return ckpt.Errorf(ckpt.CodeTooLarge, "the copies of the patch are larger than a state may be")
	}
	return ckpt.Errorf(ckpt.CodeInvalid, "the patch cannot be applied to the base")
}
