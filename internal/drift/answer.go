package drift

import (
	"context"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/schema"
)

// Fits checks whether a schema can be used and, if there is data, whether the data fits
// it. It is for the answers that people give to questions of runs. Its work has the same
// limits as the work on states.
func Fits(ctx context.Context, text, data ckpt.JSON) error {
	s, err := schema.Compile(text)
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the schema cannot be used: %v", err)
	}
	if len(data) == 0 {
		return nil
	}
	if n := valuesIn(data); n > maxSchemaValues {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the data has %d values, and a schema is tried on at most %d", n, maxSchemaValues)
	}
	value, err := meter.Value(data)
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the data is not JSON: %v", err)
	}
	broken, _, stopped, err := s.Try(ctx, value, schema.MaxWork)
	switch {
	case err != nil:
		return err
	case stopped:
		return ckpt.Errorf(ckpt.CodeTooLarge, "trying the schema on the data needs more than %d units of work", schema.MaxWork)
	case len(broken) > 0:
		return ckpt.Errorf(ckpt.CodeSchemaMismatch, "the data does not match the schema of the question: %s", placesOf(broken))
	}
	return nil
}

// placesOf names the first places that violate a schema.
func placesOf(broken []schema.Violation) string {
	var places []string
	for _, v := range broken[:min(len(broken), 3)] {
		at := v.Pointer
		if at == "" {
			at = "the whole"
		}
		places = append(places, phrase.CutTo(at+" "+v.What, 200))
	}
	return strings.Join(places, "; ")
}
