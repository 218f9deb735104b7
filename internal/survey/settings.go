package survey

// Settings are the settings that a daemon has in force.
//
//	GET /v1/settings     for administrators
type Settings struct {
	Settings []Setting `json:"settings"`
}

// Setting is one setting.
type Setting struct {
	Key string `json:"key"` // as in the file, for example backup.keep
	// Value is in the form of a flag. For notify it says only whether hooks are set, because they may hold
	// credentials.
	Value string `json:"value"`
	SetBy string `json:"set_by"`      // a file and its line, an environment variable, or a flag; "" for the default
	Env   string `json:"environment"` // the variable that sets it, "" for none
	Live  bool   `json:"live"`        // a reload is enough to change it
	Doc   string `json:"doc"`
}
