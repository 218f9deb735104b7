package mcpserver

// Gives returns the schemas of each tool's answers.
func Gives() map[string]map[string]any {
	schemas := map[string]map[string]any{}
	for name, t := range New(Options{}).gives {
		schemas[name] = schemaOf(t)
	}
	return schemas
}
