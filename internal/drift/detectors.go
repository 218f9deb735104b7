package drift

func loops() []loop {
	return []loop{repeat{}, cycle{}, stale{}, errorStreak{}, errorRate{}, sameError{}, repeatedError{}, repeatedResult{}, churn{}}
}
