package server

import (
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

func (c *call) postCheckpoint() error {
	r, err := c.saveRequest()
	if err != nil {
		return err
	}
	return c.save(r)
}

func (c *call) putCheckpoint() error {
	contentType, err := c.contentType()
	if err != nil {
		return err
	}
	r, err := c.rawSave(c.r.PathValue("id"), contentType)
	if err != nil {
		return err
	}
	return c.save(r)
}

func (c *call) save(r *ckpt.SaveRequest) error {
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	ref := ckpt.RunRef{Agent: r.Agent, Run: r.Run}
	if err := c.before(ref, r.Epoch, BeginSave); err != nil {
		return err
	}
	if err := c.beginAnew(ref, r.Epoch); err != nil {
		return err
	}
	saved, err := c.server.store.Checkpoints.Save(ctx, c.scope, r)
	if err != nil {
		return err
	}
	if err := c.durable(saved.Run, &saved.Durability); err != nil {
		return err
	}
	c.sendSaved(saved)
	return nil
}

func (c *call) listCheckpoints() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	if f.Labels, err = c.query.labels(); err != nil {
		return err
	}
	if f.Suspect, err = c.query.flag("suspect"); err != nil {
		return err
	}
	f.Before = c.query.get("before")
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	page, err := c.server.store.Checkpoints.Checkpoints(ctx, c.scope, f)
	if err != nil {
		return err
	}
	c.sendPage(page)
	return nil
}

// filter reads the parameters that list and latest have in common.
func (c *call) filter() (f ckpt.CheckpointFilter, err error) {
	f.Agent = c.agent
	if f.Run, err = c.query.run(); err != nil {
		return f, err
	}
	f.Kind, err = c.query.kind()
	return f, err
}

func (c *call) latestCheckpoint() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	clean, err := c.query.is("clean", false)
	if err != nil {
		return err
	}
	if clean {
		f.Suspect = new(bool)
	}
	state, err := c.wantsState()
	if err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	ck, err := c.server.store.Checkpoints.Latest(ctx, c.scope, f, state)
	if err != nil {
		return err
	}
	c.sendCheckpoint(ck, state)
	return nil
}

// wantsState reads ?state=. If the client wants the state, it waits for a share of the
// memory for states.
func (c *call) wantsState() (bool, error) {
	state, err := c.query.is("state", true)
	if err != nil || !state {
		return false, err
	}
	return true, c.hold(&c.conn.owner.states, 1)
}

func (c *call) getCheckpoint() error {
	state, err := c.wantsState()
	if err != nil {
		return err
	}
	ck, err := c.checkpoint("id", state)
	if err != nil {
		return err
	}
	c.sendCheckpoint(ck, state)
	return nil
}

// checkpoint reads the checkpoint that a part of the path names.
func (c *call) checkpoint(part string, state bool) (*ckpt.Checkpoint, error) {
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	return c.server.store.Checkpoints.Checkpoint(ctx, c.scope, c.r.PathValue(part), state)
}

func (c *call) getState() error {
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ck, err := c.checkpoint("id", true)
	if err != nil {
		return err
	}
	contentType := ck.ContentType
	if contentType == "" {
		contentType = ipc.TypeBytes
	}
	c.Header().Set(ipc.HeaderSHA256, ck.SHA256)
	c.Header().Set("X-Content-Type-Options", "nosniff")
	c.send(http.StatusOK, []string{contentType}, ck.State)
	return nil
}

func (c *call) patchCheckpoint() error {
	var p ckpt.CheckpointPatch
	if err := c.decode(&p); err != nil {
		return err
	}
	if p.Labels == nil && p.Pinned == nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "there is nothing to change: give labels or pinned")
	}
	if p.Labels != nil {
		if err := ckpt.CheckLabels(*p.Labels); err != nil {
			return err
		}
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	ck, err := c.server.store.Checkpoints.Patch(ctx, c.scope, c.r.PathValue("id"), p)
	if err != nil {
		return err
	}
	c.sendCheckpoint(ck, false)
	return nil
}

func (c *call) deleteCheckpoint() error {
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	removal, err := c.server.store.Checkpoints.Delete(ctx, c.scope, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, removal)
}

func (c *call) diffCheckpoints() error { return c.diffWith(c.checkpoint) }

// diffWith compares the two checkpoints in the path, which it reads with find.
func (c *call) diffWith(find func(part string, state bool) (*ckpt.Checkpoint, error)) error {
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	a, err := jsonState(find, "a")
	if err != nil {
		return err
	}
	b, err := jsonState(find, "b")
	if err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.heavy, 1); err != nil {
		return err
	}
	d, err := diff(a, b)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, d)
}

func jsonState(find func(part string, state bool) (*ckpt.Checkpoint, error), part string) ([]byte, error) {
	ck, err := find(part, true)
	if err != nil {
		return nil, err
	}
	if !ckpt.IsJSON(ck.ContentType) {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "the state of %s is %s, not JSON: get both states and compare them", ck.ID, ck.ContentType)
	}
	return ck.State, nil
}

func (c *call) restore() error {
	r := ckpt.RestoreRequest{Agent: c.agent, IdempotencyKey: c.key}
	if c.r.ContentLength != 0 { // an empty body asks for the newest checkpoint
		if err := c.decode(&r); err != nil {
			return err
		}
	}
	if err := checkRestore(&r); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	ck, replayed, err := c.server.store.Checkpoints.Restore(ctx, c.scope, r)
	if err != nil {
		return err
	}
	c.markReplayed(replayed)
	c.sendCheckpoint(ck, true)
	return nil
}

// saveRequest decodes a POST of a checkpoint, in any of its forms.
func (c *call) saveRequest() (*ckpt.SaveRequest, error) {
	contentType, err := c.contentType()
	if err != nil {
		return nil, err
	}
	switch media(contentType) {
	case ckpt.ContentTypeJSON:
		return c.envelopeSave()
	case ipc.TypeMergePatch, ipc.TypeJSONPatch:
		return c.patchSave(media(contentType))
	}
	return c.rawSave("", contentType)
}

// rawSave reads the state from the body, and everything else from the query and the
// headers. A PUT has an id.
func (c *call) rawSave(id, contentType string) (*ckpt.SaveRequest, error) {
	if media(contentType) == ipc.TypeDelta {
		return c.deltaSave(id)
	}
	if err := c.query.refuse("it belongs to changes", "base", "content_type"); err != nil {
		return nil, err
	}
	if err := c.refuseHeaders(belongsToChanges, ipc.HeaderBaseSHA256); err != nil {
		return nil, err
	}
	r, err := c.saveParameters(contentType)
	if err != nil {
		return nil, err
	}
	if contentType == "" {
		contentType = ipc.TypeBytes
	}
	r.ID, r.ContentType = id, contentType
	if err := c.readState(r); err != nil {
		return nil, err
	}
	if err := c.checkSum(r.State); err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is not what was sent: %v; send it again", err)
	}
	return r, nil
}
