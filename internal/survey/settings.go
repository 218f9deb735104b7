package survey

// Settings are those that a daemon has in force.
//
//	GET /v1/settings     for administrators
type Settings struct {
	Settings []Setting `json:"settings"`
}

// Setting is one of them.
type Setting struct {
	Key   string `json:"key"`         // as in the file, for example backup.keep
	Value string `json:"value"`       // as a flag takes it; hooks of notify may hold credentials, so only that there are some is told
	SetBy string `json:"set_by"`      // a file and its line, an environment variable, or a flag; "" for the default
	Env   string `json:"environment"` // the variable that sets it, "" for none
	Live  bool   `json:"live"`        // a reload is enough to change it
	Doc   string `json:"doc"`
}
