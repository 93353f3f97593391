package selector

// Cached is how many expressions a Compiler remembers at most.
const Cached = cached

// Remembered is how many expressions the Compiler remembers.
func (c *Compiler) Remembered() int { return c.compiles.Len() }

// SameExpression reports whether two Selectors share one compiled expression.
func SameExpression(a, b *Selector) bool { return a.expression != nil && a.expression == b.expression }

// Spent is what evaluations by the Selector have cost.
func (s *Selector) Spent() uint64 { return s.spent.Load() }
