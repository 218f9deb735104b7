package console

// askView is a form: the action, and the values that it needs. Its key is made when the
// form is drawn, so that sending it twice performs the action once.
type askView struct {
	frame
	What, Heading, Intro, Do string
	Lost                     []string // what a new beginning loses
	Fields                   []field
	Hidden                   []pair
	Reason                   bool // it asks for a reason
	Cancel                   string
	Key                      string
}

type pair struct{ Name, Value string }

// field is one input of a form.
type field struct {
	ID, Name, Label, Kind string // Kind is text, long, number, choice, yes, fold for a long one that is folded, told for a text, or link
	Value, Help           string
	Options               []option
	Required              bool
}

type option struct {
	Value, Label, Help string
	Chosen             bool
}
