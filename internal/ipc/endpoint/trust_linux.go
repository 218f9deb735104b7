package endpoint

// firstPerson is UID_MIN of login.defs as distributions ship it.
const firstPerson = 1000
