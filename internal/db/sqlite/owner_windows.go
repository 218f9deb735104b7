package sqlite

// fileOwner has nothing to say on Windows, where files inherit their rights from
// the folder that they are made in.
type fileOwner struct{}

func ownerToBe(string) fileOwner { return fileOwner{} }

func (fileOwner) give(string, []string) error { return nil }
