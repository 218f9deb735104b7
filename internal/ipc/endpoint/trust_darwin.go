package endpoint

// firstPerson is the first number that macOS gives to a person.
const firstPerson = 500
