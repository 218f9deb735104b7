package console

// askView is a form: what is about to be done, and what it needs to know first. Its
// key is made when it is drawn, so that sending it twice does it once.
type askView struct {
	frame
	What, Heading, Intro, Do string
	Lost                     []string // what beginning anew loses
	Fields                   []field
	Hidden                   []pair
	Reason                   bool // it asks why
	Cancel                   string
	Key                      string
}

type pair struct{ Name, Value string }

// field is one thing to fill in.
type field struct {
	ID, Name, Label, Kind string // Kind is text, long, number, choice, yes, or fold for a long one that is folded
	Value, Help           string
	Options               []option
	Required              bool
}

type option struct {
	Value, Label, Help string
	Chosen             bool
}
