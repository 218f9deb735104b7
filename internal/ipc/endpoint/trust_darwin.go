package endpoint

// firstPerson is the first uid that macOS assigns to a person.
const firstPerson = 500
