// Package change plans the changes that a person makes by the plugin of kubectl. A plan is made
// from a look at the object and at what depends on it: it says what the change does and what
// follows, or it is refused with a remedy. It is written only to the object as it was looked at.
package change
