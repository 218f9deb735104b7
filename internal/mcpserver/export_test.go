package mcpserver

// Gives are the schemas of what each tool answers.
func Gives() map[string]map[string]any {
	schemas := map[string]map[string]any{}
	for name, t := range New(Options{}).gives {
		schemas[name] = schemaOf(t)
	}
	return schemas
}
