package main

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// needWhole are the words that need the whole grammar, wherever they are in the command line.
var needWhole = []string{"-h", "--help", "--version"}

// parserFor returns a parser for a command line. It has only the part of the grammar that the line
// needs, or the whole grammar.
func parserFor(g *grammar, args []string, options []kong.Option) (*kong.Kong, error) {
	if part, enough := partOf(g, args); enough {
		return kong.New(&g.Flags, append(options, part)...)
	}
	return kong.New(g, options...)
}

// partOf returns the part of the grammar that a command line needs: the flags of the whole program,
// and the command that the line begins with. Building the rest takes longer than most commands. It
// returns false if the line needs the whole grammar.
func partOf(g *grammar, args []string) (kong.Option, bool) {
	if len(args) == 0 || slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(needWhole, arg) }) {
		return nil, false
	}
	all := reflect.ValueOf(g).Elem()
	for _, field := range reflect.VisibleFields(all.Type()) {
		if _, is := field.Tag.Lookup("cmd"); !is || commandName(field) != args[0] {
			continue
		}
		if _, whole := field.Tag.Lookup("whole"); whole {
			return nil, false
		}
		command := all.FieldByIndex(field.Index).Addr().Interface()
		return kong.DynamicCommand(args[0], field.Tag.Get("help"), field.Tag.Get("group"), command, string(field.Tag)), true
	}
	return nil, false
}

var wordEnds = regexp.MustCompile(`([a-z])([A-Z])`)

// commandName returns the parser's name for the command of a field.
func commandName(field reflect.StructField) string {
	return cmp.Or(field.Tag.Get("name"), strings.ToLower(wordEnds.ReplaceAllString(field.Name, "$1-$2")))
}
