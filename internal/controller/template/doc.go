// Package template reconciles ElementalMachineTemplates: it keeps in their status
// what a machine made from them would be, for the cluster autoscaler to scale
// from zero, and how many hosts there are for it.
//
// A fleet changes all the time, and each look is at all of it, so a template is
// looked at at once when it was at rest and then every ten seconds at most, less
// often where there are more than a hundred.
package template
