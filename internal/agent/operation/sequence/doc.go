// Package sequence runs operations that consist of steps, with a way back.
//
// The step that is about to begin is on disk before it begins. After a power cut, or when the
// agent was restarted, that step runs again, so each step can be repeated.
package sequence
