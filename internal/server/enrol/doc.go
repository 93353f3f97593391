// Package enrol gives a key a host: one that exists, one that an administrator declared
// for the key or its serial number, a new one of the registration that the token belongs
// to, or a pending one for a host that asks for re-adoption.
//
// Enrolling again with a key changes nothing. The key is the identity; the token only
// permits the first enrolment. Package api calls it; package trust decides about known
// keys.
package enrol
