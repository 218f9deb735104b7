package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// SnapshotName is the name with which a policy asks for the schema of workflow snapshots.
const SnapshotName = "workflow-snapshot"

// Schema is a JSON Schema, ready to be tried: draft 2020-12 or, if it says so, draft-07.
// The library parses and resolves it. This package evaluates it, with a meter, so that no
// schema can hang, the place in the state is known, and no value of the state gets into a
// message.
type Schema struct {
	root        *jsonschema.Schema
	draft7      bool
	unevaluated bool // some part needs to know what others have evaluated
	byPlace     map[string]*jsonschema.Schema
	anchors     map[string]*jsonschema.Schema
	refs        map[*jsonschema.Schema]*jsonschema.Schema
	patterns    map[*jsonschema.Schema]*meter.Pattern
	patternsOf  map[*jsonschema.Schema][]namePattern // its patternProperties
	never       map[*jsonschema.Schema]bool          // the parts that are false

	places int // total bytes of the places of all parts
	budget meter.PatternBudget
}

// The limits of reading a schema. The place of a part is the path to it, so a long name
// above many parts would be stored once for each part.
const (
	maxSchemaDepth   = 200                   // levels of nested parts
	maxSchemaNesting = 2*maxSchemaDepth + 20 // levels of the JSON: reading it costs its length for each level
	maxSchemaPlaces  = 4 << 20               // total bytes of all places
)

// namePattern is one of patternProperties.
type namePattern struct {
	*meter.Pattern
	schema *jsonschema.Schema
}

// Compile reads the schema of a policy. An error says what is wrong with it.
func Compile(text ckpt.JSON) (*Schema, error) {
	var name string
	if json.Unmarshal(text, &name) == nil && name != "" {
		if name != SnapshotName {
			return nil, fmt.Errorf("the program has no schema with the name %q: it has %q", phrase.Cut(name), SnapshotName)
		}
		text = ckpt.SnapshotSchema
	}
	if depth := jsontext.Nesting(text); depth > maxSchemaNesting {
		return nil, fmt.Errorf("it is more than %d deep", maxSchemaDepth)
	}
	var root jsonschema.Schema
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("it is not a JSON Schema: %w", err)
	}
	s := &Schema{
		root: &root, draft7: strings.Contains(root.Schema, "draft-07"),
		byPlace: map[string]*jsonschema.Schema{}, anchors: map[string]*jsonschema.Schema{}, refs: map[*jsonschema.Schema]*jsonschema.Schema{},
		patterns: map[*jsonschema.Schema]*meter.Pattern{}, patternsOf: map[*jsonschema.Schema][]namePattern{},
		never: map[*jsonschema.Schema]bool{}, budget: meter.MaxPatterns,
	}
	if v := root.Schema; v != "" && !s.draft7 && !strings.Contains(v, "2020-12") {
		return nil, fmt.Errorf("$schema is %q: draft 2020-12 and draft-07 are known", phrase.Cut(v))
	}
	if err := s.visit("", &root, 0); err != nil {
		return nil, err
	}
	for place, part := range s.byPlace {
		if err := s.resolve(place, part); err != nil {
			return nil, err
		}
	}
	_, err := root.Resolve(nil) // finds all other mistakes
	return s, err
}

// visit records a part of the schema and all parts below it.
func (s *Schema) visit(place string, part *jsonschema.Schema, depth int) error {
	if part == nil {
		return nil
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("%s: it is more than %d deep", phrase.Cut(place), maxSchemaDepth)
	}
	if s.places += len(place); s.places > maxSchemaPlaces {
		return fmt.Errorf("the names of its parts are too long: with the names above them they may have %s together", phrase.Bytes(maxSchemaPlaces))
	}
	s.byPlace[place] = part
	s.never[part] = part.Not != nil && reflect.ValueOf(*part.Not).IsZero()
	s.unevaluated = s.unevaluated || part.UnevaluatedItems != nil || part.UnevaluatedProperties != nil
	for _, kind := range append(slices.Clone(part.Types), part.Type) {
		if kind != "" && !slices.Contains(schemaTypes, kind) {
			return fmt.Errorf("%s: type is %q: it must be one of %s", placeText(place), phrase.Cut(kind), strings.Join(schemaTypes, ", "))
		}
	}
	slices.Sort(part.Types)
	part.Types = slices.Compact(part.Types)
	switch {
	case part.DynamicRef != "":
		return fmt.Errorf("%s: $dynamicRef is not supported", placeText(place))
	case part.ID != "" && place != "" && !(s.draft7 && strings.HasPrefix(part.ID, "#")):
		return fmt.Errorf("%s: an $id inside the schema is not supported", placeText(place))
	case s.draft7 && strings.HasPrefix(part.ID, "#"):
		s.anchors[part.ID[1:]] = part
	}
	for _, anchor := range []string{part.Anchor, part.DynamicAnchor} {
		if anchor != "" {
			s.anchors[anchor] = part
		}
	}
	if err := s.compilePatterns(place, part); err != nil {
		return err
	}
	var err error
	below(part, func(name string, child *jsonschema.Schema) {
		if err == nil {
			err = s.visit(place+name, child, depth+1)
		}
	})
	return err
}

// schemaTypes are the names of types in JSON Schema.
var schemaTypes = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

func placeText(place string) string {
	if place == "" {
		return "the schema itself"
	}
	return place
}

func (s *Schema) compilePatterns(place string, part *jsonschema.Schema) error {
	if part.Pattern != "" {
		p, err := s.budget.Compile(part.Pattern)
		if err != nil {
			return fmt.Errorf("%s/pattern: %w", place, err)
		}
		s.patterns[part] = p
	}
	for _, text := range slices.Sorted(maps.Keys(part.PatternProperties)) {
		p, err := s.budget.Compile(text)
		if err != nil {
			return fmt.Errorf("%s/patternProperties: %w", place, err)
		}
		s.patternsOf[part] = append(s.patternsOf[part], namePattern{p, part.PatternProperties[text]})
	}
	return nil
}

// resolve finds the target of a part's reference. A reference can only name a part of the
// same schema: a daemon fetches nothing.
func (s *Schema) resolve(place string, part *jsonschema.Schema) error {
	if part.Ref == "" {
		return nil
	}
	fragment, ok := strings.CutPrefix(part.Ref, "#")
	if !ok {
		return fmt.Errorf("%s: $ref is %q: it can only point into the schema itself (#…)", placeText(place), phrase.Cut(part.Ref))
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return fmt.Errorf("%s: $ref is %q: %w", placeText(place), phrase.Cut(part.Ref), err)
	}
	target := s.byPlace[fragment]
	if !strings.HasPrefix(fragment, "/") && fragment != "" {
		target = s.anchors[fragment]
	}
	if target == nil {
		return fmt.Errorf("%s: $ref is %q, which does not exist in the schema", placeText(place), phrase.Cut(part.Ref))
	}
	s.refs[part] = target
	return nil
}

// below visits the direct children of a part, with their places in it.
func below(s *jsonschema.Schema, visit func(name string, child *jsonschema.Schema)) {
	for name, child := range map[string]*jsonschema.Schema{
		"items": s.Items, "additionalItems": s.AdditionalItems, "contains": s.Contains, "unevaluatedItems": s.UnevaluatedItems,
		"additionalProperties": s.AdditionalProperties, "propertyNames": s.PropertyNames, "unevaluatedProperties": s.UnevaluatedProperties,
		"not": s.Not, "if": s.If, "then": s.Then, "else": s.Else, "contentSchema": s.ContentSchema,
	} {
		if child != nil {
			visit("/"+name, child)
		}
	}
	for name, list := range map[string][]*jsonschema.Schema{
		"prefixItems": s.PrefixItems, "items": s.ItemsArray, "allOf": s.AllOf, "anyOf": s.AnyOf, "oneOf": s.OneOf,
	} {
		for i, child := range list {
			visit("/"+name+"/"+strconv.Itoa(i), child)
		}
	}
	for name, children := range map[string]map[string]*jsonschema.Schema{
		"$defs": s.Defs, "definitions": s.Definitions, "dependencies": s.DependencySchemas, "dependentSchemas": s.DependentSchemas,
		"properties": s.Properties, "patternProperties": s.PatternProperties,
	} {
		for key, child := range children {
			visit("/"+name+"/"+jsontext.EscapePointer(key), child)
		}
	}
}
