"""The statistics of comparisons: pure functions on arrays, int64 nanoseconds in, float nanoseconds out.

    arrays           what a series may hold
    autocorrelation  how much neighbors in time resemble each other: effective size, block length
    counted          statistics of samples in which values occur several times
    estimators       median and Hodges-Lehmann of paired differences, Harrell-Davis quantiles
    pairing          two series joined by key
    resampling       intervals within one restart (or one pair of restarts): block and cluster bootstrap
    restarts         intervals across restarts, the level that supports a claim
    exact            tests that list every arrangement of the restarts
    precision        where the variance is, the smallest detectable change, the noise floor of A against A
    claims           from the evidence to a verdict and its reason

A difference is always B minus A: negative means that B took less time.
"""
