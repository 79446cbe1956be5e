"""Linear algebra of the methods that need some: factors of Hessians and the feedback of errors along them."""
