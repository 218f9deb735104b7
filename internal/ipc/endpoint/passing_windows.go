package endpoint

import (
	"errors"
	"slices"

	"golang.org/x/sys/windows"
)

// passingErrnos are the errors of accept that say nothing about the listener: the client
// went away, or handles or memory are short for the moment.
var passingErrnos = []windows.Errno{
	windows.ERROR_NO_DATA, windows.ERROR_BROKEN_PIPE, windows.ERROR_PIPE_NOT_CONNECTED,
	windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY,
	windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NOT_ENOUGH_QUOTA, windows.ERROR_COMMITMENT_LIMIT,
	windows.ERROR_PIPE_BUSY,
}

func passing(err error) bool {
	var no windows.Errno
	return errors.As(err, &no) && slices.Contains(passingErrnos, no)
}
