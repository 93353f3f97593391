// Package token shows a person the registration token of an ElementalRegistration, and plans
// to replace it. It gives the token itself only to those who ask for it.
package token
