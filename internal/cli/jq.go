package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// jqTime is the time limit for an expression of --jq, because it could run forever.
const jqTime = 30 * time.Second

// parseJQ parses the expression of --jq. The expression sees only the JSON: no
// environment, no files.
func parseJQ(text string) (*gojq.Code, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, Usagef("the jq expression does not parse: %v", err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, Usagef("the jq expression does not compile: %v", err)
	}
	return code, nil
}

// writeJQ writes each result of the expression on its own line: a text unchanged,
// anything else as JSON.
func writeJQ(w io.Writer, code *gojq.Code, value any) error {
	ctx, cancel := context.WithTimeout(context.Background(), jqTime)
	defer cancel()
	for results := code.RunWithContext(ctx, numbered(value)); ; {
		result, more := results.Next()
		if !more {
			return nil
		}
		if err, failed := result.(error); failed {
			return Usagef("the jq expression failed on this output: %v", err)
		}
		if text, is := result.(string); is {
			if _, err := fmt.Fprintln(w, text); err != nil {
				return err
			}
			continue
		}
		text, err := gojq.Marshal(result)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(bytes.TrimSpace(text), '\n')); err != nil {
			return err
		}
	}
}

// numbered returns a value with its numbers in the form for jq: whole numbers exactly.
func numbered(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbered(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case json.Number:
		return number(v)
	}
	return value
}

func number(n json.Number) any {
	if whole, err := n.Int64(); err == nil {
		return int(whole)
	}
	if !strings.ContainsAny(string(n), ".eE") {
		if large, ok := new(big.Int).SetString(string(n), 10); ok {
			return large
		}
	}
	f, _ := n.Float64()
	return f
}
