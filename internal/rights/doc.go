// Package rights says which verbs a change of an object needs besides update: whoever may change
// the labels of a host may not approve, fence or erase it for that reason. The webhooks ask the
// API server whether the user has them. The package reads objects only.
package rights
