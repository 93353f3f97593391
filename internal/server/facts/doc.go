// Package facts converts what hosts report into ElementalHost status, and bounds it.
// It is pure: it reads and writes nothing but the objects it is given. Packages
// status, enrol and bootstrapsecret call it.
//
// Facts are assertions of a host. Texts and lists that are too long are cut, so that a
// host with unusual hardware can still enrol. Operations and endpoint evidence, which
// decisions depend on, are refused instead, with an error of package problem.
package facts
